#!/bin/bash
set -e
cd /app
wc -l < horse.log > coral.txt
