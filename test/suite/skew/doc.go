// Package skew proves that managers and agents of this version and of the former one work together,
// also while they are upgraded and downgraded under load.
package skew
