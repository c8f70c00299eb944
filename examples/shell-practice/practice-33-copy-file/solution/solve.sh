#!/bin/bash
set -e
cd /app
cp crater.log ferry.txt
