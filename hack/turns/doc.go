// Turns runs the tests that are too long for every run of CI, as many of them as a time allows. In each group it runs
// the one that passed longest ago:
//
//	go run ./hack/turns -time 30m
//
// Turns that passed are recorded with their duration in the cache of test/tools. Without a record the date decides
// where a group begins. What the time does not allow is printed as NOT RUN and is no failure; a turn that fails makes
// the program fail, and is the first of its group next time.
package main
