#!/bin/bash
set -e
cd /app
cat garden.csv
rm glass.csv
