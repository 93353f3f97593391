// Package rewrite replaces a former endpoint by the endpoint in the documents of
// a Kubernetes node, and leaves every other byte of them as it is.
package rewrite
