// Package clusters measures how long many workload clusters take that are made one after the other, or at once: all of Cluster API's
// controllers and this provider's are real, and so are the agents of the hosts, which are virtual. It says what
// each process took of the processors.
package clusters
