// Package rewrite replaces former endpoints with the current one in the
// configuration of a Kubernetes node and in objects of its cluster, and leaves
// every other byte as it is. Packages nodeconfig and publish use it; it reads and
// writes no files.
package rewrite
