#!/bin/bash
set -e
cd /app
cat grain.csv
mkdir bean
