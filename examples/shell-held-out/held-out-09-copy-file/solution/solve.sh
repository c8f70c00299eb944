#!/bin/bash
set -e
cd /app
cp hive.log coal.txt
