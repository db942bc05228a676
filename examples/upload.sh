#!/bin/sh
# upload.sh URL FILE [NAME=VALUE...]: serve a model file, replacing one of its name. The others are settings: model_id=fraud max_batch_size=16 pinned=true
set -eu
url=$1 file=$2
shift 2
for setting; do
    set -- "$@" --form-string "$setting"
    shift
done
curl --silent --show-error --fail-with-body --form "file=@$file" --form overwrite=true "$@" "$url/v1/models/upload"
echo
