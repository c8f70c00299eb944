#!/bin/bash
set -e
cd /app
cp lantern.csv crane.txt
