// Package bare is the baseline of the benchmarks: the minimum that the manager and its hosts must do, waiting connections
// and writes to an API server, without this provider. Ratios to the baseline depend less on the machine than absolute
// figures.
package bare
