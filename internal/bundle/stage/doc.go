// Package stage unpacks bundles on a host, into a folder of their own. Nothing is written
// to where the files belong in the end: the files can be verified, executed and imported
// from the folder first, and installed by renaming.
//
// The folder has each file of the bundle under its name in the bundle, and bundle.json.
// The order makes power cuts harmless: all files and folders are durable before bundle.json
// is written. Whatever a power cut leaves, Load returns no error only for a folder in which
// every file has the digest that the manifest says, and Unpack starts anew otherwise.
package stage
