#!/bin/bash
set -e
cd /app
cat elm.txt
grep dove heron.log > hive.txt
