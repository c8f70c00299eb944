#!/bin/bash
set -e
cd /app
cat harbor.log
grep cat goose.txt > falcon.log
