// Release makes, checks and publishes releases. Run it by make release, make verify-release and
// make publish; docs/release.md says what a release has.
package main
