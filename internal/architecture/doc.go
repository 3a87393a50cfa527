// Package architecture holds no code, only the test that imports go down: which package is on which floor, and which
// may not know each other.
package architecture
