#!/bin/bash
set -e
cd /app
grep crab jar.log > maple.csv
