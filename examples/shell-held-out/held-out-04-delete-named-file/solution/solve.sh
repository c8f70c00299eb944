#!/bin/bash
set -e
cd /app
cat harbor.csv
rm bush.log
