"""What happens to a frame, in order: conversion, pairing, control tokens, images, text, tokens, target."""
