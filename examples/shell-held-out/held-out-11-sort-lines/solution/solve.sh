#!/bin/bash
set -e
cd /app
sort camp.csv > coat.txt
