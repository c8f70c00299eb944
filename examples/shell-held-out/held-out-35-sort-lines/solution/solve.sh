#!/bin/bash
set -e
cd /app
sort berry.txt > cup.txt
