#!/bin/bash
set -e
cd /app
cp disk.txt ivory.txt
