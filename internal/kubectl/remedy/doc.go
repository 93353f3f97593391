// Package remedy says what a person can do about a problem: a command to run or a field to
// change for each reason of a condition, and for each reason why placement rules a host out.
package remedy
