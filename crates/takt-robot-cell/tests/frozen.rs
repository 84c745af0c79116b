//! A whole cell whose cameras lie: frozen pictures and odd stamps under a live driver. Judged by the simulated
//! controller's slider and by the records.
//!
//! Nothing here depends on how fast the machine is: tests wait for what must happen.

mod support;
