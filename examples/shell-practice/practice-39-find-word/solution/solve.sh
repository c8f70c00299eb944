#!/bin/bash
set -e
cd /app
grep jade cliff.log > anchor.csv
