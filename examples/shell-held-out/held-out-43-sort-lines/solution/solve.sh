#!/bin/bash
set -e
cd /app
sort coat.txt > canyon.csv
