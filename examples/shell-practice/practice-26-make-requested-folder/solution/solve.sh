#!/bin/bash
set -e
cd /app
cat coast.txt
mkdir desk
