#!/bin/bash
set -e
cd /app
head -n 2 juice.csv > lion.csv
