#!/bin/bash
set -e
cd /app
cat lizard.csv
mkdir cart
