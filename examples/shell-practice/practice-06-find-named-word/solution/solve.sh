#!/bin/bash
set -e
cd /app
cat fox.txt
grep brick garden.txt > heart.txt
