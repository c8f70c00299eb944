#!/bin/bash
set -e
cd /app
cp mango.txt dolphin.log
