#!/bin/bash
set -e
cd /app
sort chest.txt > cotton.txt
