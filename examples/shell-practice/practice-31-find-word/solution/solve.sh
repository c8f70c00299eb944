#!/bin/bash
set -e
cd /app
grep ladder field.log > banner.csv
