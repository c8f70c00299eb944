#!/bin/bash
set -e
cd /app
cat breeze.log
sort crane.log > cedar.csv
