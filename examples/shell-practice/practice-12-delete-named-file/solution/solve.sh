#!/bin/bash
set -e
cd /app
cat crow.csv
rm cake.log
