// Package namespaces runs tests in namespaces of their own, such as those of networks and
// mounts, so that they may change what belongs to a whole machine. It needs no root where
// users may have namespaces.
package namespaces
