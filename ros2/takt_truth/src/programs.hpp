// The programs of the test system; each adds its nodes and spins until the end.

#pragma once

namespace truth
{

void base();
void plan();
void serve();
void fusion();
void mixed();

}  // namespace truth
