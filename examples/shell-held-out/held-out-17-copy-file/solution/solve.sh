#!/bin/bash
set -e
cd /app
cp harbor.txt dove.log
