// Command rogue is a hostile host. It is written from the OpenAPI document of the agent API alone and imports nothing of
// this project, so it does what somebody can do who knows the public API and no source.
//
//	rogue attempts FILE   tries each attack once, and prints a line of JSON about each
//	rogue flood FILE      has one enrolled host or many strangers write as much as they can, until it is terminated
//
// The file has the assignment in JSON (type assignment): it says where the manager is, what the rogue has of its own and what it has learned about
// others. The program judges nothing: it prints what it was answered. The test beside it looks at the management cluster.
package main
