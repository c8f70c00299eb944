#!/bin/bash
set -e
cd /app
cat bud.txt
mkdir blossom
