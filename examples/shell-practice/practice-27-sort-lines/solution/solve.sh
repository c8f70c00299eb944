#!/bin/bash
set -e
cd /app
sort knee.csv > brush.csv
