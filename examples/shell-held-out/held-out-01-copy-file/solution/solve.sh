#!/bin/bash
set -e
cd /app
cp breeze.csv coral.txt
