#!/bin/bash
set -e
cd /app
cp candle.csv field.txt
