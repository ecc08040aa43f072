#!/bin/sh
# Packs Fashion-MNIST (Debian package dataset-fashion-mnist: IDX files) into native shards,
# describes them in a catalog, and reads from it.
#
#     examples/shell/fashion_mnist.sh [DIRECTORY]
#
# DIRECTORY receives train/, test/ and catalog.yaml; without one a temporary one is used.
set -eu

files=$(dpkg -L dataset-fashion-mnist 2>/dev/null | grep 'train-images-idx3-ubyte.gz$' || true)
if [ -z "$files" ]; then
    echo "Fashion-MNIST is not here: apt-get install dataset-fashion-mnist" >&2
    exit 77
fi
files=$(dirname "$files")
folder=${1:-}
if [ -z "$folder" ]; then
    folder=$(mktemp -d)
    trap 'rm -r "$folder"' EXIT
fi

squirrel pack "$files" "$folder/train" --stem train --samples-per-shard 10000
squirrel pack "$files" "$folder/test" --stem t10k

cat > "$folder/catalog.yaml" <<CATALOG
!YamlCatalog
version: 0.20.2
sources:
- !YamlSource
  identifier: train
  driver_name: sqrl
  driver_kwargs: {url: $folder/train}
- !YamlSource
  identifier: test
  driver_name: sqrl
  driver_kwargs: {url: $folder/test}
CATALOG

squirrel ls "$folder/catalog.yaml"
squirrel info "$folder/catalog.yaml#train"
squirrel verify "$folder/catalog.yaml#test@1"

echo "how many of each label, among the first 10,000 in a random order:"
squirrel cat "$folder/catalog.yaml#train" --shuffle 1 -n 10000 --select label | sort | uniq -c
