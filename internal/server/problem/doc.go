// Package problem holds the errors that the agent API answers with: RFC 9457
// problem details. Packages below the HTTP handlers return them, and package api
// writes them. Any other error is answered with 500 and logged.
package problem
