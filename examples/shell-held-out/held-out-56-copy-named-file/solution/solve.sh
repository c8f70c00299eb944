#!/bin/bash
set -e
cd /app
cat echo.txt
cp dew.txt crown.log
