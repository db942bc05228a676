#!/bin/sh
# curl.sh URL MODEL INPUT NUMBER...: what is served, what the model takes, its answer to one row of FP32, and what the server decided last
set -eu
url=$1 model=$2 input=$3
shift 3
row=$(IFS=,; echo "$*")
ask() {
    curl --silent --show-error --fail-with-body ${WAKEFUL_API_KEY:+--header "authorization: Bearer $WAKEFUL_API_KEY"} "$@"
    echo
}
ask "$url/v1/models"
ask "$url/v2/models/$model"
ask "$url/v2/models/$model/infer" --data "{\"inputs\": [{\"name\": \"$input\", \"shape\": [1, $#], \"datatype\": \"FP32\", \"data\": [$row]}]}"
ask "$url/v1/events?limit=1"
