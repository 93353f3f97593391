// Package clusters measures how long it takes to create many workload clusters, one after the other or at once. The
// controllers of Cluster API and of this provider are real, and so are the agents of the virtual hosts. Its figures
// include the CPU time and the memory of each process.
package clusters
