#!/bin/bash
set -e
cd /app
head -n 3 marsh.csv > lime.csv
