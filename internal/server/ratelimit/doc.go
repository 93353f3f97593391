// Package ratelimit bounds the rate of connections and HTTP requests of one
// source address, for callers that are not authenticated.
package ratelimit
